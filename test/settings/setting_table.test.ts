import { expect, test } from "bun:test";
import { ConfigError } from "../../src/errors.ts";
import { addFlags, environmentHelp } from "../../src/settings/setting_help.ts";
import { loggableValues, parseSettings, setting, withFlags } from "../../src/settings/setting_table.ts";
import { Command } from "commander";

const TABLE = {
  size: setting({
    variables: { SIZE: "3" },
    flag: "--size <number>",
    meaning: "how many, in `cm`",
    parse: ({ SIZE }) => Number(SIZE),
    log: (size) => size,
  }),
  label: setting({
    variables: { LABEL_TEXT: "", LABEL_COLOUR: "green" },
    meaning: "what is on the label, and how",
    parse: ({ LABEL_TEXT, LABEL_COLOUR }) => ({ text: LABEL_TEXT, colour: LABEL_COLOUR }),
    log: ({ colour }) => ({ colour }),
  }),
  password: setting({
    variables: { PASSWORD: "" },
    meaning: "what nobody may know",
    parse: ({ PASSWORD }) => PASSWORD,
  }),
};

test("parseSettings() gives each setting the texts of its variables, or their defaults", () => {
  const values: { size: number; label: { text: string; colour: string }; password: string } = parseSettings(TABLE, {
    LABEL_TEXT: "Fern",
    PASSWORD: "secret",
    OTHER: "x",
  });
  expect(values).toEqual({ size: 3, label: { text: "Fern", colour: "green" }, password: "secret" });
});

test("loggableValues() shows what a setting says of itself, and nothing of one that says nothing", () => {
  const values = parseSettings(TABLE, { LABEL_TEXT: "secret", PASSWORD: "secret" });
  expect(loggableValues(TABLE, values)).toEqual({ size: 3, label: { colour: "green" } });
});

test("withFlags() puts a flag in the place of its variable, and leaves the others alone", () => {
  expect(withFlags(TABLE, { SIZE: "4", PASSWORD: "x" }, { size: "5", json: true, password: "y" })).toEqual({
    SIZE: "5",
    PASSWORD: "x",
  });
  expect(withFlags(TABLE, { SIZE: "4" }, { size: undefined })).toEqual({ SIZE: "4" });
});

test("withFlags() refuses an empty flag", () => {
  expect(() => withFlags(TABLE, {}, { size: "" })).toThrow(ConfigError);
  expect(() => withFlags(TABLE, {}, { size: "" })).toThrow('Cannot use --size "": expected a value');
});

test("addFlags() and environmentHelp() tell each setting once, with its variables, meaning and default", () => {
  const command = new Command();
  addFlags(command, TABLE);
  expect(command.options.map(({ flags, description }) => [flags, description])).toEqual([
    ["--size <number>", "How many, in cm [SIZE] (default: 3)"],
  ]);
  expect(environmentHelp(TABLE)).toBe(`Environment:
  LABEL_TEXT, LABEL_COLOUR
      What is on the label, and how (default: none, green)
  PASSWORD
      What nobody may know (default: none)`);
});
