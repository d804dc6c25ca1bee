import { dlopen, type FFIFunction } from "bun:ffi";

/**
 * Loads functions of the C library that Bun lacks: from glibc, musl or macOS.
 *
 * @returns `undefined` on any other system.
 */
export function cLibrary<const Functions extends Record<string, FFIFunction>>(
  functions: Functions,
) {
  const musl = `libc.musl-${process.arch === "arm64" ? "aarch64" : "x86_64"}.so.1`;
  for (const name of ["libc.so.6", musl, "libSystem.B.dylib"]) {
    try {
      return dlopen(name, functions).symbols;
    } catch {
      // Try the next name.
    }
  }
  return undefined;
}
