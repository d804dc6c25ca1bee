CREATE TABLE `token_revision` (
	`id` integer PRIMARY KEY NOT NULL,
	`revision` integer NOT NULL
) STRICT;
--> statement-breakpoint
INSERT INTO `token_revision` VALUES (1, 0);
--> statement-breakpoint
ALTER TABLE `tokens` ADD `scopes` text;
