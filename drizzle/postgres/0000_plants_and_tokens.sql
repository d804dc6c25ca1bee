CREATE TABLE "plants" (
	"id" bigint PRIMARY KEY NOT NULL,
	"name" text NOT NULL,
	"tag" text
);
--> statement-breakpoint
CREATE TABLE "probes" (
	"id" integer PRIMARY KEY NOT NULL,
	"probed_at" timestamp (3) with time zone NOT NULL
);
--> statement-breakpoint
CREATE TABLE "token_revision" (
	"id" integer PRIMARY KEY NOT NULL,
	"revision" bigint NOT NULL
);
--> statement-breakpoint
CREATE TABLE "tokens" (
	"name" text PRIMARY KEY NOT NULL,
	"digest" "bytea" NOT NULL,
	"created_at" timestamp (3) with time zone NOT NULL,
	"expires_at" timestamp (3) with time zone,
	"revoked_at" timestamp (3) with time zone,
	"last_used_at" timestamp (3) with time zone,
	"scopes" text NOT NULL,
	CONSTRAINT "tokens_digest_unique" UNIQUE("digest")
);
