"""Each expression of the dashboard is one that Prometheus reads."""

from redrive.core.dashboard import ROWS
from tests.prometheus import promtool, written


def test_prometheus_reads_every_expression_of_the_dashboard(tmp_path):
    queries = [query.expr for panels in ROWS.values() for panel in panels for query in panel.queries]
    rules = [
        {"record": f"panel:{number}", "expr": expr.replace("$__rate_interval", "5m")}
        for number, expr in enumerate(queries)
    ]
    file = {"groups": [{"name": "dashboard", "rules": rules}]}
    assert promtool("check", "rules", written(tmp_path / "rules.yml", file)) == ""
