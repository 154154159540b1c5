// SPDX-License-Identifier: Apache-2.0

package observer

import (
	"fmt"

	"github.com/weft-net/weft/internal/flow"
	"github.com/weft-net/weft/internal/kernel/sysctl"
)

// accounting is the setting by which the kernel counts the packets and bytes of connections that begin from then on.
const accounting = "net/netfilter/nf_conntrack_acct"

// Settings are the recorded settings of the node before weft changed them.
type Settings interface {
	// Keep records the value of a setting that is about to be changed.
	Keep(name, value string) error
	// Kept returns the recorded value.
	Kept(name string) (value string, kept bool)
	// Forget removes it from the record: the setting has that value again.
	Forget(name string) error
}

// account sets the setting for the level flows, and restores it for the others.
func (o *Observer) account() error {
	if o.cfg.Settings == nil {
		return nil
	}
	files := sysctl.New(o.cfg.NS)
	defer files.Close()
	write := func(value string) error {
		return files.Write([]sysctl.Pair{{Name: accounting, Value: value, IfPresent: true}})
	}
	if o.cfg.Level != flow.LevelFlows {
		value, kept := o.cfg.Settings.Kept(accounting)
		if !kept {
			return nil
		}
		if err := write(value); err != nil { // an agent that is killed here restores it when it starts again
			return err
		}
		return o.cfg.Settings.Forget(accounting)
	}
	all, err := files.Read([]string{accounting})
	if err != nil {
		return fmt.Errorf("counters of connections: %w", err)
	}
	if v := all[accounting]; v.Missing || v.Text == "1" {
		return nil
	}
	if err := o.cfg.Settings.Keep(accounting, all[accounting].Text); err != nil {
		return err
	}
	return write("1")
}
