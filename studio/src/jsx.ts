// The functions that JSX becomes; build.mjs injects them into every file.

export { Fragment, h } from "./signals";
