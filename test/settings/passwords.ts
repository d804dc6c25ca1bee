/** URLs with a password, and what looks like one. */
export const PASSWORDS = [
  "https://me:secret@example.com",
  "https://me:p@secret@example.com",
  "https://secret@example.com",
  "https://:secret@example.com",
  "me:secret@example.com:4318",
  "postgres://me:secret@host/plants",
  "postgres://me:secret/x@host/plants",
  "postgres://me:secret?x@host/plants",
  "postgres://me:secret#@host/plants",
  "postgresql:me:secret",
  "me:secret@host",
];
