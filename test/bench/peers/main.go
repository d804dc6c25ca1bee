// Go's net/http with SQLite and group commit: one goroutine commits what the others bring meanwhile.
package main

import (
	"crypto/subtle"
	"database/sql"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"

	_ "github.com/mattn/go-sqlite3"
)

type newPlant struct {
	ID   *int64  `json:"id"`
	Name *string `json:"name"`
	Tag  *string `json:"tag"`
}

type plant struct {
	Name string  `json:"name"`
	Tag  *string `json:"tag,omitempty"`
}

type failure struct {
	Error   int    `json:"error"`
	Message string `json:"message"`
}

type addition struct {
	newPlant
	outcome chan error
}

var errConflict = fmt.Errorf("`id` is taken by a different plant; choose another id")

const mostInBatch = 1000

func main() {
	queue := make(chan addition, mostInBatch)
	go commitAll(open(), queue)
	authorization := []byte("Bearer " + os.Getenv("AUTH_TOKENS"))
	http.HandleFunc("/plants", func(response http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodPost {
			respond(response, 405, failure{4051, "method not allowed"})
		} else if subtle.ConstantTimeCompare([]byte(request.Header.Get("Authorization")), authorization) != 1 {
			respond(response, 401, failure{4011, "unauthorized"})
		} else {
			create(response, request, queue)
		}
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	fmt.Fprintf(os.Stderr, "listens on http://%s\n", listener.Addr())
	must(http.Serve(listener, nil))
}

func create(response http.ResponseWriter, request *http.Request, queue chan<- addition) {
	var body newPlant
	if json.NewDecoder(request.Body).Decode(&body) != nil || body.ID == nil || body.Name == nil {
		respond(response, 400, failure{4002, "not a plant"})
		return
	}
	outcome := make(chan error, 1)
	queue <- addition{body, outcome}
	if err := <-outcome; err == errConflict {
		respond(response, 409, failure{4091, err.Error()})
	} else if err != nil {
		respond(response, 503, failure{5032, "storage"})
	} else {
		respond(response, 200, plant{*body.Name, body.Tag})
	}
}

func respond(response http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	must(err)
	response.Header().Set("Content-Type", "application/json")
	response.WriteHeader(status)
	response.Write(text)
}

func open() *sql.DB {
	database, err := sql.Open("sqlite3", "file:plants.db?_busy_timeout=5000&_journal_mode=WAL&_synchronous=FULL&_txlock=immediate")
	must(err)
	database.SetMaxOpenConns(1)
	_, err = database.Exec("PRAGMA wal_autocheckpoint = 4000")
	must(err)
	_, err = database.Exec("CREATE TABLE IF NOT EXISTS plants (id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT) STRICT")
	must(err)
	return database
}

func commitAll(database *sql.DB, queue <-chan addition) {
	insert, err := database.Prepare("INSERT INTO plants VALUES (?, ?, ?) ON CONFLICT DO NOTHING")
	must(err)
	find, err := database.Prepare("SELECT name, tag FROM plants WHERE id = ?")
	must(err)
	for first := range queue {
		batch := []addition{first}
		for len(batch) < mostInBatch && len(queue) > 0 {
			batch = append(batch, <-queue)
		}
		outcomes := make([]error, len(batch))
		err := commit(database, insert, find, batch, outcomes)
		for index, addition := range batch {
			if err != nil {
				outcomes[index] = err
			}
			addition.outcome <- outcomes[index]
		}
	}
}

func commit(database *sql.DB, insert, find *sql.Stmt, batch []addition, outcomes []error) error {
	transaction, err := database.Begin()
	if err != nil {
		return err
	}
	defer transaction.Rollback()
	insert, find = transaction.Stmt(insert), transaction.Stmt(find)
	for index, addition := range batch {
		if outcomes[index], err = add(insert, find, addition.newPlant); err != nil {
			return err
		}
	}
	return transaction.Commit()
}

func add(insert, find *sql.Stmt, given newPlant) (outcome, err error) {
	result, err := insert.Exec(*given.ID, *given.Name, given.Tag)
	if err != nil {
		return nil, err
	}
	if added, _ := result.RowsAffected(); added == 1 {
		return nil, nil
	}
	var name string
	var tag *string
	if err := find.QueryRow(*given.ID).Scan(&name, &tag); err != nil {
		return nil, err
	}
	sameTag := (tag == nil && given.Tag == nil) || (tag != nil && given.Tag != nil && *tag == *given.Tag)
	if name != *given.Name || !sameTag {
		return errConflict, nil
	}
	return nil, nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
