// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"slices"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/flow/export"
)

// megabyte is 1,000,000 bytes.
const megabyte = 1_000_000

// Export is the file as it is written.
func (f ObserveFile) Export() export.FileConfig {
	return export.FileConfig{Path: f.Path, MaxBytes: int64(f.MaxMegabytes) * megabyte, Keep: f.Keep}
}

func (o Observe) check() error {
	if !slices.Contains([]string{flow.LevelOff, flow.LevelDenied, flow.LevelFlows}, o.Level) {
		return invalid("off, denied or flows", "observe.level %q is not known", o.Level)
	}
	if o.Listen != "" {
		if err := checkAddress("observe.listen", o.Listen, "as :9443 or 10.0.0.1:9443"); err != nil {
			return err
		}
	}
	for _, receiver := range []struct {
		key, value string
		check      func() error
	}{
		{"observe.file.path", o.File.Path, o.checkFile},
		{"observe.ipfix.address", o.IPFIX.Address, o.checkIPFIX},
		{"observe.otlp.url", o.OTLP.URL, export.OTLPConfig{URL: o.OTLP.URL, HeadersFile: o.OTLP.HeadersFile}.Check},
	} {
		if receiver.value == "" {
			continue
		}
		if o.Level == flow.LevelOff {
			return invalid("denied or flows, or leave out "+receiver.key,
				"observe.level is off, and %s %q would receive nothing", receiver.key, receiver.value)
		}
		if err := receiver.check(); err != nil {
			return fmt.Errorf("%s: %w", receiver.key, err)
		}
	}
	return nil
}

func (o Observe) checkFile() error {
	if o.File.MaxMegabytes < 1 {
		return invalid("1 or more", "observe.file.maxMegabytes %d is no size", o.File.MaxMegabytes)
	}
	return o.File.Export().Check()
}

func (o Observe) checkIPFIX() error {
	if n := o.IPFIX.Enterprise; n < 0 || n > math.MaxUint32 {
		return invalid("0 to 4294967295", "observe.ipfix.enterprise %d is no private enterprise number", n)
	}
	return export.IPFIXConfig{Address: o.IPFIX.Address}.Check()
}
