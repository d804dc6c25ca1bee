/** Sets an entry as the newest one of a map, and drops the oldest one beyond this number. */
export function setNewest<Key, Value>(
  map: Map<Key, Value>,
  key: Key,
  value: Value,
  maxSize: number,
): void {
  map.delete(key);
  map.set(key, value);

  const [oldest = key] = map.keys();
  if (map.size > maxSize) map.delete(oldest);
}
