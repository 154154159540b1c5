// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/weft-net/weft/internal/cli/netconf"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam/builtin"
	"github.com/weft-net/weft/internal/plan/plugin"
)

// validate checks a configuration against the plugins on this host.
func validate(c netconf.Text, binDirs []string) validation {
	host := cni.Environment{
		Name: c.Object.Name, Dirs: binDirs, Attached: c.Object.Name != "",
		Find: func(program string) bool {
			return slices.ContainsFunc(binDirs, func(dir string) bool {
				st, err := os.Stat(filepath.Join(dir, program))
				return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
			})
		},
	}
	if c.Object.Name != "" {
		host.Version = "0.3.1" // the version of a NetworkAttachmentDefinition without cniVersion
	}
	planners, ipams := plugin.InAgent(), builtin.Readers(os.ReadFile)
	var builtin []string
	for typ := range planners {
		builtin = append(builtin, typ)
		if plugin.Builtin()[typ] == nil {
			host.NeedAgent = append(host.NeedAgent, typ)
		}
	}
	for typ := range ipams {
		builtin = append(builtin, typ)
	}
	host.NeedAgent = append(host.NeedAgent, sharedTypes()...)
	slices.Sort(builtin)
	if c.Object.Name != "" && len(c.Conf) == 0 {
		report := cni.Report{Network: c.Object.Name, Errors: []cni.Problem{}, Warnings: []cni.Warning{{
			Field: "spec.config", Msg: "spec.config is empty: the configuration is the file of the network " + c.Object.Name +
				" on each node",
		}}}
		return validation{File: c.Source, Report: report}
	}
	report := cni.ExamineWith(c.Conf, host, planners, ipams)
	report.CheckTypes(host, builtin)
	return validation{File: c.Source, Report: report}
}
