import { PlantStoreError } from "../../errors.ts";
import type { GroupCommit } from "../../group_commit/group_commit.ts";
import type { NewPlant } from "../../plant/plant.ts";

/**
 * A group commit for each part of a database whose plants are spread over several. Each gathers its
 * own batches, so that a part which hangs holds up its own plants only.
 *
 * @param partOf The part that keeps a plant.
 * @param makeQueue Makes the group commit over a part, once.
 */
export function shardedCommit<Part>(
  partOf: (plant: NewPlant) => Part,
  makeQueue: (part: Part) => GroupCommit,
): GroupCommit {
  const commits = new Map<Part, GroupCommit>();
  let isDraining = false;

  return {
    add(plant) {
      const part = partOf(plant);
      const known = commits.get(part);
      if (known !== undefined) return known.add(plant);

      if (isDraining) return Promise.reject(new PlantStoreError("shutting_down"));
      const made = makeQueue(part);
      commits.set(part, made);
      return made.add(plant);
    },

    size: () => [...commits.values()].reduce((sum, commit) => sum + commit.size(), 0),
    fill: () => Math.max(0, ...[...commits.values()].map((commit) => commit.fill())),

    async drain(timeoutMs) {
      isDraining = true;
      await Promise.all([...commits.values()].map((commit) => commit.drain(timeoutMs)));
    },
  };
}
