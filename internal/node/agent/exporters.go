// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"github.com/weft-net/weft/internal/flow/export"
	"github.com/weft-net/weft/internal/node/metrics"
)

// buildExporters creates an exporter of flows for each receiver of the configuration. sockets are their connections.
func buildExporters(cfg Config, m *metrics.Metrics, sockets *export.Sockets) (out []*export.Exporter, err error) {
	o := cfg.Observe
	for _, receiver := range []struct {
		key, value string
		create     func() (export.Sink, error)
	}{
		{"observe.file", o.File.Path, func() (export.Sink, error) { return export.NewFile(o.File.Export()) }},
		{"observe.ipfix", o.IPFIX.Address, func() (export.Sink, error) {
			return export.NewIPFIX(export.IPFIXConfig{
				Address: o.IPFIX.Address, Enterprise: uint32(o.IPFIX.Enterprise), Node: cfg.Node, Now: cfg.Now, Dial: sockets.Dial,
			})
		}},
		{"observe.otlp", o.OTLP.URL, func() (export.Sink, error) {
			return export.NewOTLP(export.OTLPConfig{
				URL: o.OTLP.URL, HeadersFile: o.OTLP.HeadersFile, Node: cfg.Node, Version: cfg.Version, Dial: sockets.Dial,
			})
		}},
	} {
		if receiver.value == "" {
			continue
		}
		sink, err := receiver.create()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", receiver.key, err)
		}
		out = append(out, export.New(sink, cfg.Log.With("component", "export")))
	}
	if len(out) > 0 {
		measureExporters(m, out)
	}
	return out, nil
}

// measureExporters registers metrics of exporters.
func measureExporters(m *metrics.Metrics, all []*export.Exporter) {
	of := func(value func(*export.Exporter) uint64) func() map[string]float64 {
		return func() map[string]float64 {
			out := map[string]float64{}
			for _, e := range all {
				out[e.String()] = float64(value(e))
			}
			return out
		}
	}
	m.Counters("weft_flows_exported_total", "Flows that were sent to the receiver.", "receiver", of((*export.Exporter).Sent))
	m.Counters("weft_flows_export_lost_total",
		"Flows that the receiver did not get: it was away for longer than the queue lasts, or refused them.", "receiver",
		of((*export.Exporter).Lost))
}
