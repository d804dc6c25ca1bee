CREATE TABLE `plants` (
	`id` integer PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`tag` text
) STRICT;
--> statement-breakpoint
CREATE TABLE `tokens` (
	`name` text PRIMARY KEY NOT NULL,
	`digest` blob NOT NULL,
	`created_at` integer NOT NULL
) STRICT;
--> statement-breakpoint
CREATE UNIQUE INDEX `tokens_digest_unique` ON `tokens` (`digest`);
