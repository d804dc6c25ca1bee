import { Type } from "@sinclair/typebox";
import { t } from "elysia";
import { ERRORS } from "../errors.ts";

/** The body of every error (RFC 8259): the contract's Error. */
export const ErrorSchema = t.Object(
  {
    error: t.Unsafe<number>(
      Type.Integer({
        format: "int32",
        description: "Numeric error value: the status times ten plus a digit for the cause",
        example: ERRORS.id_taken.error,
      }),
    ),
    message: t.String({
      description: "What was wrong, and where",
      example: ERRORS.id_taken.message,
    }),
  },
  { description: "Why a call failed" },
);
