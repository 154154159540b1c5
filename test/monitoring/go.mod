module github.com/weft-net/weft/test/monitoring

go 1.26.0

require github.com/grafana/grafana-foundation-sdk/go v0.0.22
