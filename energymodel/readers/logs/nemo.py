"""Progress bars of NeMo 1 and of Lightning.

```text
Epoch 0: :  47%|####  | 47/100 [06:19<07:13, reduced_train_loss=11.50, global_step=46.00, train_step_timing in s=49.50]
```

It is drawn again and again over itself. The step is that of the bar, since `global_step` is rounded to three digits
beyond 1,000. The bar has no date: steps have no time.
"""

import math
import re
from collections.abc import Iterable, Iterator

from energymodel.readers.log_records import NOT_SAID, LogEvent, LoggedStep
from energymodel.readers.logs.text import NUMBER, made, number, plain, step_fields, whole

SIGN = re.compile(
    r"\bEpoch \d+:.{0,400}?\|\s*(\d+)(?:/(\d+)|it)?\s*\[[^\]]{0,1000}?\b(?:reduced_)?train_(?:loss|step_t)"
)
_FIELD = re.compile(rf"[,\[]\s*([A-Za-z_][\w /.]{{0,60}}?)=({NUMBER})", re.IGNORECASE)
ROUNDED = 1e5  # samples from which on the bar may round their number


def steps(lines: Iterable[str], name: str = "") -> Iterator[LoggedStep | LogEvent]:
    """Steps of the bars, each as it was drawn last, and evaluations."""
    last: LoggedStep | None = None
    evaluation = NOT_SAID
    for raw in lines:
        line = plain(raw) if "train_" in raw else ""
        match = SIGN.search(line)
        step = whole(match[1]) if match else None
        if match is None or step is None:
            continue
        if last is not None and step != last.step:
            yield last
            last = None
        pairs = _FIELD.findall(line, match.start())
        values = step_fields("nemo", pairs)
        fields = {key: number(value) for key, value in pairs}
        consumed, validation = fields.get("consumed_samples", NOT_SAID), fields.get("val_loss", NOT_SAID)
        if step and 0 < consumed < ROUNDED and consumed % step == 0:
            values["sequences"] = consumed / step
        if step and {"loss", "step_time"} & values.keys():
            last = made(step, NOT_SAID, values) or last
        if not math.isnan(validation) and validation != evaluation:
            evaluation = validation
            if last is not None:
                yield last
                last = None
            yield LogEvent("evaluation", value=validation, step=step)
    if last is not None:
        yield last
