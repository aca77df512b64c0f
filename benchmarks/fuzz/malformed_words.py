"""Parts of malformed input: texts, values of TOML, keys, command lines."""


def _parts(lines: str, *more: str) -> tuple[str, ...]:
    return *(part for line in lines.strip().splitlines() for part in line.split(" | ")), *more


WORDS = _parts(
    """
preset | component | title | value | unit | kind | source | distribution | zero | recomputation | schedule
minimize | limits | vary | fix | tolerance | knots | power | step-time | loss | names
coordinates | covariance | values | slopes | scatter | lowest_power_cap | rated_power | gpu
landauer_multiple | tokens | goal | batch | clock | layout | accelerator | chips | host_time | batch
coefficient | wet_bulb_temperature | gemm_tile | . | .. | x | é
""",
    "",
    "\u202e",
    "\x07",
    "a" * 300,
)

TEXTS = _parts(
    """
. | / | .. | * | = | : | @0..1 | @0..1:99999 | nan | inf | -inf W | 1e400 | 1e400 W | 0 | 700 W | -1 | 5 %
1e-320 | é | 1 W W W | 1 W^99999999999 | 1 W^-1e308 | 2**9**9**9 | [1,2 | [] | lognormal 0.3 | lognormal
lognormal nan | normal 1 K | uniform 2 1 | uniform 1e400 2 | beta 0 0 | joint | joint x | joint ../x
h100-sxm | h100-sxm + megatron | near-limit | test-1b-h100 | _base | ../h100-sxm | llama-3.1-405b | megatron
Accelerator | NearLimitAccelerator | object | __class__ | energy | etp^1e999 | energy*time^2 | energy^ | *
energy**2 | 0.5:1 | 1:0.5 | 1: | : | a:b:c | 0:inf | nan:nan | 1 W:2 K | 2 Mi token to 16 Mi token over 5 %
1 to 2 over 0 | a to b over c | 1 token to 2 token over 1e-300 | 5..0.5 1000000000000000 | 1..2 1e9
1..2 log 0 | 0..0 log 3 | 1,2, | a,b | all | 64 | 0 layouts | plan.clock=0.8 | plan.clock | =1
plan.batch@0..1= | plan.power.* | plan.power.*=1:2 | model.* | ٣ | ² | 1.2 GHz | 1e300 GHz | 50 MHz | 700
1980 | none | full | zb-h1 | gpipe | standard | selective | true | plan.clock | system.accelerator | system
plan.layout | energy,time | top:99999999999999999999 | top:² | pareto:energy | full:energy
histogram:x | along:plan.clock | best | dask://x | process | devices
""",
    "",
    " ",
    "9" * 5000,
    "9" * 400 + " W",
    "x" * 5000,
    "\x00",
    "\x1b[31m",
    "\u202e",
    "(" * 3000,
    "1 " + "m*" * 35 + "m",
    "9" * 30,
)

LITERALS = _parts(
    """
true | false | nan | inf | -inf | 0 | -1 | 1 | 0.5 | 1e308 | -1e308 | 5e-324 | 1e400 | 2.5 | 64 | 1979-05-27
07:32:00 | 1979-05-27T07:32:00Z | [] | {} | [[]] | [{}] | [1] | [-inf] | [1, 2] | [1, 'a'] | [true] | [nan, 1]
{value = 1} | {value = []} | {value = 1, unit = [-inf]} | {value = true, unit = 'W'} | {unit = 'W'}
{value = nan, unit = 'W'} | {value = 1, unit = 'W', distribution = 0.5} | {value = 1, unit = 'W', kind = 5}
{value = 1, unit = '', source = []} | {value = {value = 1}} | {component = [-1]} | {component = 5}
{preset = 5} | {preset = []} | {preset = 'h100-sxm'} | {preset = ''} | {title = 5} | {value = 1e400}
{value = 'x', unit = 'W'} | {value = 1, unit = 'Hz'} | {value = 1, unit = 'W', extra = 1} | [[[[[1]]]]]
{low = 1, high = 2} | [0, 1] | ['0.5', '1'] | [1, 0] | ['', ''] | [1, 2, 3] | [[1, 0], [0, 1]] | [1e400, 1]
""",
    "9" * 30,
    "9" * 400,
    "9" * 5000,
    "0x" + "f" * 300,
    "-" + "9" * 400,
)

RECORDS = _parts("""
calibration | calibration.power | calibration.power.rated_power | calibration.power.lowest_power_cap
calibration.power.gpu | calibration.power.source | calibration.power.names | calibration.power.covariance
calibration.step-time | calibration.step-time.slopes | calibration.step-time.names | calibration.loss.names
calibration.step-time.values | calibration.step-time.scatter | calibration.step-time.coordinates | optimize
optimize.vary | optimize.fix | optimize.minimize | optimize.limits | optimize.tolerance | optimize.knots
optimize.limits.time | optimize.limits.energy | optimize.vary.plan
optimize.vary.plan.clock | optimize.vary.plan.power | optimize.vary.plan.batch | optimize.vary.system
plan.goal | plan.goal.tokens | plan.power | plan.power.first_stage | plan.batch | plan.clock | plan.layout
plan.layout.zero | plan.layout.recomputation | plan.layout.schedule | uncertainty | uncertainty.plan.clock
system.accelerator.landauer_multiple | system.accelerator.preset | system.accelerator.component | fleet.x
fleet.x.accelerator | fleet.x.chips | system.workload.preset | system.learning.loss_law.component | title
""")

SECTIONS = ("system", "plan", "optimize", "uncertainty", "calibration", "fleet", "title", "base", "note", "name")
COMMANDS: dict[str, tuple[str, ...]] = {
    "evaluate": ("--trajectory", "--points", "--plot"),
    "optimize": ("--minimize", "--limit", "--vary", "--fix", "--tolerance"),
    "pareto": ("--minimize", "--points", "--limit", "--vary", "--fix"),
    "sensitivity": ("--of", "--limit", "--vary", "--fix"),
    "sweep": (
        "--axis",
        "--axis",
        "--keep",
        "--minimize",
        "--limit",
        "--samples",
        "--of",
        "--seed",
        "--precision",
        "--engine",
    ),
    "limits": (),
    "batch": ("--plot",),
    "timeline": ("--plot",),
    "scenario": ("-o",),
    "calendar": ("--deadline",),
    "compare": ("--accelerator", "--accelerator"),
    "frontier": ("--points",),
    "fleet": ("--group", "--group"),
    "documents": (),
    "replan": ("--so-far", "--rest"),
    "monitor": ("--log", "--power"),
    "predict": (),
    "presets": (),
}
COMMON = (
    "--set",
    "--cluster",
    "--model",
    "--training",
    "--accelerator",
    "--chips",
    "--tokens",
    "--batch",
    "--sequence",
    "--microbatch",
    "--vocabulary",
    "-o",
    "--json",
    "--minimize",
)
FLAGS = ("--json", "--trajectory", "--dry-run", "--open")
SCENARIOS = ("test-1b-h100", "test-1b-h100", "llama-3.1-405b-h100", "olmo-2-13b-h100", "deepseek-v3-h800")
