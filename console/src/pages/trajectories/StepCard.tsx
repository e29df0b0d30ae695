// One call: what was asked, what came back, and what it was worth. A fault is set apart from an answer.
import { Alert, Text } from "@mantine/core";
import { TriangleAlert } from "lucide-react";
import { memo } from "react";

import type { Step } from "../../api/types";
import { number } from "../../format";
import { Tag } from "../../shared/Tag";
import { Blocks } from "./Blocks";
import { Terminal } from "./Terminal";
import { Timing } from "./Timing";
import { Value } from "./Value";

/** `address`: of the page, to which the link to this call is added. Who draws the cards follows it, as in `shared/links`. */
export const StepCard = memo(function StepCard({
  of,
  position,
  longest,
  ended,
  address,
}: {
  of: Step;
  position: number;
  longest: number;
  ended: boolean;
  address: string;
}) {
  return (
    <li
      id={`step-${position}`}
      tabIndex={-1}
      data-step={position}
      aria-label={`Call ${position}: ${of.name ?? of.kind}`}
      className={of.fault ? "step step-fault" : of.discarded ? "step step-discarded" : "step"}
    >
      <div className="step-head">
        <a href={`${address}#step-${position}`} data-link className="link smaller numeric" aria-label={`Link to call ${position}`}>
          {`#${position}`}
        </a>
        <span className="step-name typewriter small">{of.kind === "score_group" ? "score_group" : of.name}</span>
        <Marks of={of} ended={ended} />
        <Timing of={of} longest={longest} />
      </div>
      <div className="step-body">
        <section aria-label={`Input of call ${position}`}>
          <Value value={of.input} />
        </section>
        <section aria-label={`Result of call ${position}`} className="step-result">
          <StepResult of={of} ended={ended} />
        </section>
      </div>
      {of.sandbox.length > 0 && <Terminal items={of.sandbox} label={`Sandbox of call ${position}`} />}
    </li>
  );
});

export function Marks({ of, ended }: { of: Step; ended: boolean }) {
  return (
    <span className="step-marks">
      {of.reward !== null && (
        <Tag colour={of.reward > 0 ? "green" : "gray"} className="numeric">
          {`reward ${number(of.reward)}`}
        </Tag>
      )}
      {of.finished && <Tag colour="green">finished</Tag>}
      {of.discarded && (
        <Tag colour="yellow" title="Called after the end of the episode; not counted.">
          discarded
        </Tag>
      )}
      {of.fault && <Tag colour="red">{`fault ${of.fault}`}</Tag>}
      {of.error && <Tag colour="orange">refused</Tag>}
      {of.number === null && <Tag colour="blue">{ended ? "cut off" : "running"}</Tag>}
    </span>
  );
}

function StepResult({ of, ended }: { of: Step; ended: boolean }) {
  if (of.fault) {
    return (
      <Alert
        color="red"
        variant="outline"
        className="notice"
        icon={<TriangleAlert size={18} aria-hidden />}
        title={`Fault: ${of.fault}`}
      >
        <Text size="sm" className="as-typed">
          {of.message || "The environment returned no answer."}
        </Text>
        {of.fault_id && <Text size="xs" c="dimmed" mt={4}>{`Fault id in the log: ${of.fault_id}`}</Text>}
      </Alert>
    );
  }
  if (of.error) {
    return (
      <Alert color="orange" variant="outline" className="notice" title="The tool did not run">
        <Text size="sm" className="as-typed">
          {of.error}
        </Text>
      </Alert>
    );
  }
  if (of.number === null) {
    return <p className="plain small dimmed">{ended ? "The server stopped before the call returned." : "No result yet."}</p>;
  }
  const scores = Array.isArray(of.scores) ? of.scores : [];
  return (
    <div className="stack">
      {(of.blocks.length > 0 || scores.length === 0) && <Blocks blocks={of.blocks} />}
      {scores.length > 0 && <Value value={scores} />}
      {hasContent(of.metadata) && (
        <details>
          <summary>
            <span className="smaller dimmed">Metadata</span>
          </summary>
          <Value value={of.metadata} />
        </details>
      )}
    </div>
  );
}

function hasContent(value: unknown): boolean {
  return value !== null && value !== undefined && !(typeof value === "object" && Object.keys(value).length === 0);
}
