import { Type } from "@sinclair/typebox";
import { t } from "elysia";
import { ERRORS } from "../errors.ts";

const NUMBERS = Object.values(ERRORS).map(({ error }) => error);

/** The body of every error (RFC 8259): the contract's Error. */
export const ErrorSchema = t.Object(
  {
    error: t.Unsafe<number>(
      Type.Integer({
        format: "int32",
        // No `enum`: a client generated from it could not read a cause that came later, and would hide the error.
        minimum: 4000,
        maximum: 5999,
        description: [
          "Numeric error value: the status times ten plus a digit for the cause. One of",
          `${NUMBERS.join(", ")}; take one that is not in this list by its status, because a later server may know more.`,
        ].join(" "),
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
