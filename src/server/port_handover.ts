import { dlopen, ptr } from "bun:ffi";
import { readdirSync } from "node:fs";

/**
 * Hands a TCP port from the socket that listens on it to a new one, so that no connection is refused or reset: both
 * listen (`SO_REUSEPORT`, socket(7)), and the kernel gives every new connection to the new one. What waits in the old
 * one's queue is still accepted there. To be used while just one socket of this process listens on the port.
 *
 * @param port The port, which a socket of this process listens on.
 * @param listen Makes the new socket listen, with `SO_REUSEPORT`.
 * @throws {Error} If this is not Linux with glibc, or `listen` throws: then only the old socket listens, as before.
 */
export function handOverPort<Server extends { stop(): unknown }>(port: number, listen: () => Server): Server {
  const { symbols: libc } = dlopen("libc.so.6", LIBC);
  const socket = readdirSync("/proc/self/fd")
    .map(Number)
    .find((fd) => isListening(libc, fd, port));
  if (socket === undefined) throw new Error(`No socket listens on port ${port}`);
  setOption(libc, socket, SO_REUSEPORT, new Int32Array([1]));
  const server = listen();
  try {
    // The sockets of a port are numbered in the order in which they began to listen.
    setOption(libc, socket, SO_ATTACH_REUSEPORT_CBPF, programThatReturns(1));
  } catch (error) {
    server.stop();
    throw error;
  }
  return server;
}

/** The functions of the C library, as socket(7) and getsockname(2) declare them. */
const LIBC = {
  getsockname: { args: ["i32", "ptr", "ptr"], returns: "i32" },
  getsockopt: { args: ["i32", "i32", "i32", "ptr", "ptr"], returns: "i32" },
  setsockopt: { args: ["i32", "i32", "i32", "ptr", "u32"], returns: "i32" },
} as const;

type Libc = ReturnType<typeof dlopen<typeof LIBC>>["symbols"];

// Linux's numbers (asm-generic/socket.h).
const SOL_SOCKET = 1;
const SO_REUSEPORT = 15;
const SO_ACCEPTCONN = 30;
const SO_ATTACH_REUSEPORT_CBPF = 51;

/** Whether a descriptor is a TCP socket that listens on a port. */
function isListening({ getsockname, getsockopt }: Libc, fd: number, port: number): boolean {
  const value = new Int32Array(1);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, ptr(value), ptr(new Uint32Array([4]))) !== 0) return false;
  const address = new DataView(new ArrayBuffer(SOCKADDR_BYTES));
  const found = getsockname(fd, ptr(address), ptr(new Uint32Array([SOCKADDR_BYTES]))) === 0;
  // In sockaddr_in and sockaddr_in6 the port is at the same place (ip(7), ipv6(7)).
  return found && value[0] === 1 && address.getUint16(2) === port;
}

/** Room for the address of any socket: `sockaddr_storage`. */
const SOCKADDR_BYTES = 128;

function setOption({ setsockopt }: Libc, fd: number, name: number, value: NodeJS.TypedArray): void {
  if (setsockopt(fd, SOL_SOCKET, name, ptr(value), value.byteLength) === 0) return;
  throw new Error(`The system does not take socket option ${name}`);
}

/** A `sock_fprog` of one instruction, `BPF_RET | BPF_K` (linux/filter.h): its result is the number of a socket. */
function programThatReturns(socket: number): NodeJS.TypedArray {
  instruction.setUint16(0, 0x06, true);
  instruction.setUint32(4, socket, true);
  return new BigUint64Array([1n, BigInt(ptr(instruction))]);
}

/** Kept here, because the program only points to it. */
const instruction = new DataView(new ArrayBuffer(8));
