import { X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import type { Config } from "../settings/config.ts";
import { CommandError, reasonOf } from "../errors.ts";

/** A certificate and its key, checked. */
export interface Certificate {
  /** PEM, with the certificates between it and the root. */
  readonly cert: string;
  /** PEM. */
  readonly key: string;
  /** When it expires. */
  readonly expires: Date;
}

/**
 * Reads the PEM files of HTTPS.
 *
 * @throws {CommandError} If one cannot be read, is no PEM, or the key is not the certificate's.
 */
export async function readCertificate({ certFile, keyFile }: NonNullable<Config["tls"]>): Promise<Certificate> {
  const [cert, key] = await Promise.all([readPem(certFile), readPem(keyFile)]);
  try {
    createSecureContext({ cert, key });
    return { cert, key, expires: new X509Certificate(cert).validToDate };
  } catch (cause) {
    throw new CommandError(`Cannot use "${certFile}" with "${keyFile}": ${reasonOf(cause)}`, { cause });
  }
}

async function readPem(path: string): Promise<string> {
  try {
    return await Bun.file(path).text();
  } catch (cause) {
    throw new CommandError(`Cannot read "${path}": ${reasonOf(cause)}`, { cause });
  }
}
