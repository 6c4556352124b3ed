"""The command line: `turret serve`, `turret plugins`, `turret version`.

Owns: argv, environment and configuration files; nobody else reads them. Imports heavy rooms only inside the command
that needs them, so that `turret --help` answers at once.
"""
