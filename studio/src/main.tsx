// Entry of the page. Order of reading: api.ts, router.ts, shell.tsx, views/registry.ts, run/model/open.ts, run/model/model.ts, run/panes.ts.

import { render } from "preact";
import { exportedRuns, isExport } from "./api";
import { go, href } from "./router";
import { Shell } from "./shell";
import "./style.css";

if (isExport && !location.hash && exportedRuns[0]) go(href(["runs", exportedRuns[0]]));
render(<Shell />, document.getElementById("app")!);
