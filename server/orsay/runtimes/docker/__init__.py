"""The ``docker`` runtime: sessions in containers of an image that speaks ORS."""
