"""The sandbox endpoints that environments written for the ``openreward`` package use."""
