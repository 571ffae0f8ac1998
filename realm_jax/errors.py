"""The errors users meet: each says what was expected, what came, where, and what to change."""


class RealmError(Exception):
    """A mistake or a damage that a person can act on; `realm` prints it without a traceback.

    Args:
      problem: one clause that says what went wrong.
      where: the file, folder, flag or config key concerned.
      expected: what would have been right.
      found: what came instead.
      fix: what to change.
    """

    def __init__(
        self,
        problem: str,
        *,
        where: object = None,
        expected: object = None,
        found: object = None,
        fix: str | None = None,
    ):
        self.problem, self.where, self.expected, self.found, self.fix = (
            problem,
            where,
            expected,
            found,
            fix,
        )
        parts = [problem]
        parts += [f"  where:    {where}"] if where is not None else []
        parts += [f"  expected: {expected}"] if expected is not None else []
        parts += [f"  found:    {found}"] if found is not None else []
        parts += [f"  fix:      {fix}"] if fix is not None else []
        super().__init__("\n".join(parts))


class UsageError(RealmError):
    """Flags that each can be and together mean nothing; exit code 2, as of other wrong usage."""


class ConfigError(RealmError):
    """A config file, key or value that cannot be used."""


class InputError(RealmError):
    """A corpus, vocabulary or question file that cannot be read as what it should be."""


class DamageError(RealmError):
    """A published folder or checkpoint whose bytes are not those its manifest promises."""


class MismatchError(RealmError):
    """Two parts that are each sound and do not belong together (another corpus, another width)."""


class Stopped(Exception):
    """No error: the stop signal came, and what was finished until then is saved.

    Args:
      stage: in which it came.
      step: of that stage; 0 where it has none.
    """

    def __init__(self, stage: str, step: int = 0):
        super().__init__(f"stopped in stage {stage} at step {step}; the same command goes on there")
        self.stage, self.step = stage, step
