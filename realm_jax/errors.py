"""Errors for users: what is wrong, where, what was expected and found, and how to fix it."""


class RealmError(Exception):
    """An error that the user can fix; `realm` prints it without a traceback.

    Args:
      problem: what is wrong, as one clause.
      where: the file, folder, flag or config key concerned.
      expected: the value or state that is required.
      found: the value or state that was found.
      fix: the change or command that fixes it.
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
    """Command-line flags that contradict each other; exit code 2, like other usage errors."""


class ConfigError(RealmError):
    """A config file, key or value that is not allowed."""


class InputError(RealmError):
    """Input that is missing or not readable, or that cannot be worked on as it is."""


class DamageError(RealmError):
    """A file that is missing, truncated or altered, or that cannot be loaded."""


class MismatchError(RealmError):
    """Two valid parts that do not fit together, such as an index and another corpus."""


class Stopped(Exception):
    """The stop signal came; finished steps or shards are kept. Not an error.

    Args:
      stage: the stage in which it came.
      step: finished steps of that stage.
    """

    def __init__(self, stage: str, step: int = 0):
        super().__init__(f"stopped in stage {stage} at step {step}; rerun the command to resume")
        self.stage, self.step = stage, step
