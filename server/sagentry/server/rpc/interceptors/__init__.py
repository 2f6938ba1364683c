"""What happens around every RPC, from the outside in.

request id → logging → errors → authentication → admission → the method.
"""
