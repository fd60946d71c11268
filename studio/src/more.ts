// What `lazy.tsx` loads when it is first needed.

export { Actions } from "./run/actions";
export { WhatIf } from "./run/what-if";
export { CopyAsTest } from "./run/test-text";
export { AnswerForm, ConsentForm, Plan } from "./ui/forms/answer";
export { Compare } from "./views/compare";
export { Engine } from "./views/engine";
export { Questions } from "./views/questions";
export { Session, Sessions } from "./views/sessions";
export { StartForm } from "./views/start";
export { Workflow, Workflows } from "./views/workflows";
