/** Lets promises settle: more microtasks than any chain of promises here is long. */
export async function promisesSettled(): Promise<void> {
  for (let i = 0; i < 20; i++) await Promise.resolve();
}
