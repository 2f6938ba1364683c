"""The contract's shared types and the domain's: paired conversions, for `plugin/` and `rpc/` only.

`x_to_pb` never fails on a value of the domain. `x_from_pb` trusts nothing: it raises `InvalidInputError`
with the path of the field. Unknown enum numbers become what the contract says of them.
"""
