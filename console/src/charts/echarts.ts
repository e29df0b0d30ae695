// The parts of ECharts that the pages use: only these are in the bundle. Drawn on canvas, with tooltips on it too:
// tooltips made of HTML would carry inline styles, which the page's security policy forbids.
import { CustomChart, LineChart } from "echarts/charts";
import {
  BrushComponent,
  DataZoomComponent,
  GridComponent,
  ToolboxComponent,
  TooltipComponent,
} from "echarts/components";
import { init, use, type ECharts, type EChartsCoreOption } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

use([
  BrushComponent,
  CanvasRenderer,
  CustomChart,
  DataZoomComponent,
  GridComponent,
  LineChart,
  ToolboxComponent,
  TooltipComponent,
]);

export { init, type ECharts, type EChartsCoreOption };
