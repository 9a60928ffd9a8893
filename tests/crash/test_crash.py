"""Kill -9 at random moments, at least 200 times, at least 20 times in each class of moment; then the judge."""
import tap
from judge import judge
from rig import CLASSES, Rig

KILLS = 200
HITS = 20
KILLS_MAX = 320     # more short runs until every class was hit often enough
CONTROL_KILLS = 40


@tap.test
def nothing_is_lost_doubled_or_reordered_by_kills():
    rig = Rig()
    ok = False
    try:
        rig.start_writers()
        while rig.kills < KILLS or (min(rig.hits.values()) < HITS and rig.kills < KILLS_MAX):
            rig.short_run()
        rig.finish()
        rig.report()
        wrong = judge(rig.path("shop"), rig.consumers)
        assert not wrong, f"{len(wrong)} violations, the first: {wrong[:10]}"
        missed = {name: rig.hits[name] for name in CLASSES if rig.hits[name] < HITS}
        assert not missed, f"not killed often enough in: {missed}"
        ok = True
    finally:
        rig.close(keep=not ok)


@tap.test
def effect_and_inbox_apart_are_found_by_the_judge():
    """The negative control: this setting must lose once-ness, and the judge must see it."""
    rig = Rig(apart=True, seed=2)
    try:
        rig.start_writers()
        while rig.kills < CONTROL_KILLS:
            rig.short_run()
        rig.finish()
        rig.report()
        wrong = judge(rig.path("shop"), rig.consumers)
        doubles = [w for w in wrong if w.startswith("shop.free:") and "times" in w]
        assert doubles, "the judge found no double effect where there must be some"
        assert not [w for w in wrong if w.startswith("shop.ordered:")], "the ordered consumer is not at fault"
    finally:
        rig.close()


if __name__ == "__main__":
    tap.main()
