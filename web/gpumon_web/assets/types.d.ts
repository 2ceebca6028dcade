// Types of what the server sends to the scripts, and of what other scripts add to the page.

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
  /** A color of the theme. Without one, the line has the color of the user who holds the GPU. */
  role?: string;
  label?: string;
  /** Short label next to the value, in a panel that lists its lines. */
  mark?: string;
  look?: "dots" | "thin";
  /** Since when values are NaN or infinite, and the word for the last one. */
  odd?: [number, string];
  /** Seconds of the newest point (`step`) that are over. */
  filled?: number;
  /** Time of the last point that the server sent with the chart, and seconds between those that the page appended. */
  made?: number;
  every?: number;
}

export interface Panel {
  key: string;
  title: string;
  unit: string;
  lines: Line[];
  limits: { at: number; text: string }[];
  /** Whether the axis begins at zero: the area below the line is filled. */
  zero: boolean;
  top?: number;
  tall?: number;
  /** Whether the values of its lines are listed next to it. */
  lists?: boolean;
  [field: string]: any;
}

/** An epoch: begin, end, number and level. A band of several epochs also has the number of the last one. */
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
  /** Whether it reaches to now, which is `until`. */
  goesOn?: boolean;
  until?: number;
  /** Why the GPU has no current values, and for how many seconds. */
  silent?: { title: string; age: number };
  /** When anything was last received, if lines may end earlier. */
  heard?: number;
  /** Time of the first sample. */
  known?: number;
  /** Whether it is about a run, which lasts from begin to end whether it was sampled or not. */
  spans?: boolean;
  /** Times in which nothing of it was sampled. */
  unseen?: [number, number][];
  [field: string]: any;
}

/** A part of the axis of a chart: from and to. */
export type Range = [number, number];

/** What changed with an answer: names of values, and by table the names of cells by row. */
export interface News {
  values: string[];
  tables: Map<string, Map<string, string[]>>;
  reset?: boolean;
  delta?: any;
}

declare global {
  interface Window {
    /** Exports of all modules by the name of the module, for the console and for tests. */
    gpumon: Record<string, any>;
    dash_clientside: any;
    Plotly: any;
  }
}
