import { dlopen, type FFIFunction } from "bun:ffi";

/**
 * Functions of the C library, for what Bun lacks. Its name differs: glibc, musl, macOS.
 *
 * @returns `undefined` if this system has none of these.
 */
export function cLibrary<const Functions extends Record<string, FFIFunction>>(
  functions: Functions,
) {
  const musl = `libc.musl-${process.arch === "arm64" ? "aarch64" : "x86_64"}.so.1`;
  for (const name of ["libc.so.6", musl, "libSystem.B.dylib"]) {
    try {
      return dlopen(name, functions).symbols;
    } catch {
      // It is one of the others.
    }
  }
  return undefined;
}
