"""enable."""

import click

from tidepool.cli.context import Exit

__all__ = ["enable"]


@click.command()
@click.argument("what", type=click.Choice(["pyspark"]))
@click.option("--off", is_flag=True, help="Undo the change.")
def enable(what: str, off: bool) -> int:
    """Make `from pyspark.ml.torch.distributor import TorchDistributor` use this cluster, in this Python environment.

    An installed pyspark takes precedence.

    \b
    tidepool enable pyspark
    tidepool enable pyspark --off
    """
    from tidepool.stand_ins import OURS, THEIRS, disable, is_real
    from tidepool.stand_ins import enable as enable_for_good

    try:
        link = disable() if off else enable_for_good()
    except OSError as error:
        click.echo(
            f"tidepool: {error.filename} cannot be written ({error.strerror}): use an environment of your own.",
            err=True,
        )
        return Exit.REFUSED
    if off:
        click.echo(f"Removed {link}. `import pyspark` now finds an installed pyspark, if there is one.", err=True)
    elif is_real():
        click.echo(THEIRS, err=True)
    else:
        click.echo(f"{OURS}, by {link}.", err=True)
    return Exit.DONE
