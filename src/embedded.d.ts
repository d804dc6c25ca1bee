// Files imported with an attribute: as a text, or as a path, even inside the executable.
declare module "*.sql" {
  const text: string;
  export default text;
}

declare module "swagger-ui-dist/*" {
  const path: string;
  export default path;
}
