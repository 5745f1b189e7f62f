"""Who is asked: profiles of models (``files``), and the ``registry`` that finds one by name.

``complete`` fills in a configuration from its profiles and from what is known of its endpoint
(``capabilities``). ``serving`` starts a teacher on this ``machine``, under a ``supervisor``.
"""
