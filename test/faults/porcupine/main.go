// Checks the history on standard input with Porcupine. A line is an operation as JSON:
// {"id": "1", "outcome": "stored", "plant": "...", "invoked": 1, "returned": 2}; times are in nanoseconds.
// Exits with 1 if the history is not linearizable.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	ID, Outcome, Plant string
	Invoked            int64
	Returned           *int64 // null: the outcome is unknown
}

// The state is the plant that is stored, or "". An unknown add may take effect at the very end, where nobody sees it.
var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byID := map[string][]porcupine.Operation{}
		for _, op := range history {
			id := op.Input.(operation).ID
			byID[id] = append(byID[id], op)
		}
		partitions := make([][]porcupine.Operation, 0, len(byID))
		for _, ops := range byID {
			partitions = append(partitions, ops)
		}
		return partitions
	},
	Init: func() interface{} { return "" },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		op, stored := input.(operation), state.(string)
		after := stored
		if after == "" {
			after = op.Plant
		}
		switch op.Outcome {
		case "stored":
			return after == op.Plant, after
		case "conflict":
			return stored != "" && stored != op.Plant, stored
		case "unknown":
			return true, after
		default: // a read
			return stored == op.Plant, stored
		}
	},
}

func main() {
	var history []porcupine.Operation
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var op operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		returned := int64(math.MaxInt64)
		if op.Returned != nil {
			returned = *op.Returned
		}
		history = append(history, porcupine.Operation{Input: op, Call: op.Invoked, Return: returned})
	}
	if !porcupine.CheckOperations(model, history) {
		fmt.Printf("not linearizable: %d operations\n", len(history))
		os.Exit(1)
	}
	fmt.Printf("linearizable: %d operations\n", len(history))
}
