import { PlantStoreError } from "../../errors.ts";
import type { GroupCommit } from "../../group_commit/group_commit.ts";
import type { NewPlant } from "../../plant/plant.ts";

/**
 * Returns a group commit that distributes plants over the parts of a database. Each part has its own batches,
 * so a part that hangs delays only its own plants.
 *
 * @param partOf Returns the part that stores a plant.
 * @param makeQueue Makes the group commit of a part. Called once for each part.
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
