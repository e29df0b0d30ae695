// The form of a tool, made from its JSON schema, or its input as JSON.
import { Alert, Group, NumberInput, SegmentedControl, Stack, Text, Textarea, Title } from "@mantine/core";
import { withTheme } from "@rjsf/core";
import { Theme } from "@rjsf/mantine";
import {
  titleId,
  type ArrayFieldTitleProps,
  type DescriptionFieldProps,
  type FieldProps,
  type RegistryFieldsType,
  type RegistryWidgetsType,
  type TitleFieldProps,
  type WidgetProps,
} from "@rjsf/utils";
import {
  type FormEvent,
  type KeyboardEvent,
  type ReactNode,
  useEffect,
  useId,
  useMemo,
  useState,
} from "react";

import type { JsonObject } from "../api/json";
import { adapt, toInput, uiFor } from "./adapt";
import { JsonText } from "./JsonText";
import { DateTimeWidget, DateWidget, TimeWidget } from "./MomentWidgets";
import { validator } from "./validator";

const ThemedForm = withTheme(Theme);

/** Text grows with what is typed, numbers are kept as typed until they are checked. */
function TextWidget(props: WidgetProps) {
  const { schema, options, id, name, label, hideLabel, value, required, disabled, readonly, rawErrors, onChange } =
    props;
  const types = Array.isArray(schema.type) ? schema.type : [schema.type];
  const common = {
    id,
    name,
    label: hideLabel ? undefined : label,
    "aria-label": hideLabel ? label : undefined,
    description: hideLabel ? undefined : (options.description ?? schema.description),
    placeholder: props.placeholder || undefined,
    required,
    disabled: disabled || readonly,
    error: rawErrors?.length ? rawErrors.join("\n") : undefined,
  };
  if (types.includes("integer") || types.includes("number")) {
    return (
      <NumberInput
        {...common}
        value={typeof value === "number" || typeof value === "string" ? value : ""}
        onChange={onChange}
        allowDecimal={!types.includes("integer")}
        clampBehavior="none"
        min={schema.minimum}
        max={schema.maximum}
      />
    );
  }
  return (
    <Textarea
      {...common}
      value={typeof value === "string" ? value : ""}
      // a text that has to be there may be empty
      onChange={(event) =>
        onChange(event.currentTarget.value === "" && !required ? undefined : event.currentTarget.value)
      }
      autosize
      minRows={1}
      maxRows={16}
    />
  );
}

function JsonField(props: FieldProps) {
  const { fieldPathId, schema, formData, onChange, required, name } = props;
  return (
    <JsonText
      id={fieldPathId.$id}
      label={schema.title ?? name}
      description={schema.description ?? "Any JSON"}
      value={formData as unknown}
      onChange={(value) => onChange(value, fieldPathId.path)}
      required={required}
      minRows={2}
    />
  );
}

/** Headings inside a form stand below that of the tools. */
function TitleField({ id, title }: TitleFieldProps) {
  return title ? (
    <Title id={id} order={3} size="h6" mt="xs">
      {title}
    </Title>
  ) : null;
}

function ArrayTitle({ fieldPathId, title }: ArrayFieldTitleProps) {
  return title ? (
    <Title id={titleId(fieldPathId)} order={3} size="h6">
      {title}
    </Title>
  ) : null;
}

function DescriptionField({ id, description }: DescriptionFieldProps) {
  return description ? (
    <Text id={id} size="xs" c="dimmed" mb={4} component="div">
      {description}
    </Text>
  ) : null;
}

const templates = {
  TitleFieldTemplate: TitleField,
  ArrayFieldTitleTemplate: ArrayTitle,
  DescriptionFieldTemplate: DescriptionField,
};
const widgets: RegistryWidgetsType = { TextWidget, DateWidget, DateTimeWidget, TimeWidget };
const fields: RegistryFieldsType = { json: JsonField };

type Way = "form" | "json";

/** `children` are the buttons; `onSubmit` gets input that fits the schema, or any JSON object typed as such. */
export function ToolForm({
  schema,
  onSubmit,
  children,
}: {
  schema: JsonObject;
  onSubmit: (input: Record<string, unknown>) => void;
  children: (way: Way, broken: boolean) => ReactNode;
}) {
  const name = useId().replaceAll(/\W/g, "");
  const adapted = useMemo(() => adapt(schema), [schema]);
  const ui = useMemo(() => ({ ...uiFor(adapted), "ui:title": "", "ui:description": "" }), [adapted]);
  const [data, setData] = useState<unknown>(undefined);
  const [way, setWay] = useState<Way>("form");
  const [checked, setChecked] = useState(false);
  const [broken, setBroken] = useState<string | null>(null);

  useEffect(() => setBroken(null), [way]);

  function submitJson(event: FormEvent) {
    event.preventDefault();
    if (broken === null) onSubmit((toInput(data, schema) ?? {}) as Record<string, unknown>);
  }

  return (
    <Stack gap="sm" onKeyDown={submitByKeys}>
      <Group justify="space-between" gap="xs">
        <Text size="sm" c="dimmed">
          {way === "form" ? "Fields marked * are required." : "The tool's input as JSON."}
        </Text>
        <SegmentedControl
          size="xs"
          value={way}
          onChange={(value) => setWay(value as Way)}
          aria-label="Input format"
          data={[
            { value: "form", label: "Form" },
            { value: "json", label: "JSON" },
          ]}
        />
      </Group>
      {way === "form" ? (
        <ThemedForm
          idPrefix={name}
          schema={adapted}
          uiSchema={ui}
          validator={validator}
          widgets={widgets}
          templates={templates}
          fields={fields}
          formData={data}
          onChange={(event) => setData(event.formData)}
          onSubmit={(event) => {
            setChecked(false);
            onSubmit(toInput(event.formData, schema) as Record<string, unknown>);
          }}
          onError={() => setChecked(true)}
          liveValidate={checked ? "onChange" : false}
          noHtml5Validate
          showErrorList={false}
          focusOnFirstError
        >
          {children(way, false)}
        </ThemedForm>
      ) : (
        <form onSubmit={submitJson}>
          <Stack gap="sm">
            <JsonText
              label="Input"
              value={toInput(data, schema)}
              onChange={setData}
              onProblem={setBroken}
              minRows={5}
            />
            {children(way, broken !== null)}
          </Stack>
        </form>
      )}
      {way === "form" && checked && (
        <Alert color="red" variant="outline" role="alert" p="xs">
          Some fields do not fit yet; nothing was called.
        </Alert>
      )}
    </Stack>
  );
}

/** Ctrl+Enter submits from inside a text area, where Enter begins a line. */
export function submitByKeys(event: KeyboardEvent) {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  const form = (event.target as HTMLElement).closest("form");
  if (form === null) return;
  event.preventDefault();
  form.requestSubmit();
}
