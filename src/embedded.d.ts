// What an import attribute makes of a file: its text, or the path where Bun finds it, also inside the executable.
declare module "*.sql" {
  const text: string;
  export default text;
}

declare module "swagger-ui-dist/*" {
  const path: string;
  export default path;
}
