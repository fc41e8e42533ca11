"""``qneurons info``: what is installed here, and which backend serves which device."""

from qneurons.cli.terminal import Debug, console, one_line_errors


def info(debug: Debug = False) -> None:
    """Print versions, devices, and which backend serves them."""
    with one_line_errors(debug):
        import torch

        from qneurons import kernels
        from qneurons.provenance import device_name, versions

        screen = console()
        for name, version in versions().items():
            screen.print(f"{name:9} {version or 'not installed'}")
        cpu = device_name(torch.device("cpu"))
        screen.print(f"{'cpu':9} {cpu}, {torch.get_num_threads()} threads")
        for index in range(torch.cuda.device_count()):
            name = f"cuda:{index}"
            screen.print(f"{name:9} {device_name(torch.device(name))}")
        if not torch.cuda.is_available():
            screen.print(f"{'cuda':9} no device")
        for device, backend, detail in kernels.status():
            if device == "cuda" and not torch.cuda.is_available():
                continue
            screen.print(f"{device} is served by {backend}" + (f": {detail}" if detail else ""))
