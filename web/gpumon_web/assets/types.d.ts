// What the server sends to the scripts, and what other scripts put into the page.

/** A line of a panel, in base units. `mean` has null where a value is unknown. */
export interface Line {
  /** Positions on the axis: seconds since 1970, epochs or steps. */
  x: number[];
  mean: (number | null)[];
  low?: (number | null)[];
  high?: (number | null)[];
  /** Seconds that a point covers. */
  step?: number;
  /** Whether points are joined over gaps, as logged values are. */
  joined?: boolean;
  /** A color of the theme; a line without one has the color of the user who held the GPU. */
  role?: string;
  label?: string;
  /** Short label next to the value, in a panel that lists its lines. */
  mark?: string;
  look?: "dots" | "thin";
  /** Since when the values are NaN or infinite, and the last of them. */
  odd?: [number, string];
  /** Seconds of the newest cell that are over. */
  filled?: number;
  /** Time up to which the server made the line, and the seconds between points that came later. */
  made?: number;
  every?: number;
}

export interface Panel {
  key: string;
  title: string;
  unit: string;
  lines: Line[];
  limits: { at: number; text: string }[];
  /** Whether the axis begins at zero. */
  zero: boolean;
  top?: number;
  tall?: number;
  /** Whether the values of its lines are listed next to it. */
  lists?: boolean;
  [field: string]: any;
}

/** An epoch: begin, end, number, level; several as one also have the number of the last. */
export type Band = [number, number, number, string?, number?];

export interface RunRibbon {
  id: string;
  name: string;
  user: string;
  /** Name of the phase of training. */
  training?: string;
  bands: Band[];
  phases: [number, number, string][];
}

/** A chart, as `gpumon/reports/figures/document.py` describes it. */
export interface ChartDocument {
  axis: "time" | "epochs" | "step" | "since" | "";
  begin: number;
  end: number;
  interval: number;
  step?: number;
  panels: Panel[];
  runs: RunRibbon[];
  events: { time: number; level: string; text: string; count?: number }[];
  /** Who held the GPU: begin, end, user. */
  held: [number, number, string][];
  [field: string]: any;
}

/** From and to, on the axis of a chart. */
export type Range = [number, number];

/** Values that came with an answer: their names, and the changed cells of each table. */
export interface News {
  values: string[];
  tables: Map<string, Map<string, string[]>>;
  reset?: boolean;
  delta?: any;
}

declare global {
  interface Window {
    /** The modules of the page by name, for the console and for tests. */
    gpumon: Record<string, any>;
    dash_clientside: any;
    Plotly: any;
  }
}
