// What an import attribute makes of a file: its text, or its path, even inside the executable.
declare module "*.sql" {
  const text: string;
  export default text;
}

declare module "swagger-ui-dist/*" {
  const path: string;
  export default path;
}
