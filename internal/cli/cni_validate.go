// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/netconf"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam/blocks"
)

// validation is the output of weft cni validate -o json.
type validation struct {
	File string `json:"file"`
	OK   bool   `json:"ok"`
	cni.Report
}

func newCNIValidateCmd(env Env) *cobra.Command {
	var strict bool
	var output *printer.Format
	var binDirs string
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Validate a network configuration without running plugins",
		Long: "Validates a CNI network configuration (.conf, .conflist or .json; - is standard input), or those of the\n" +
			"NetworkAttachmentDefinitions of a manifest. Errors make an ADD fail. Warnings are unknown keys (with the nearest known\n" +
			"key), settings without effect, duplicate keys, keys that belong to the runtime, and plugin types that weft does not\n" +
			"have and that --cni-bin-dir has no program for, or that only the agent serves. The exit code is 1 if there are errors\n" +
			"or, with --strict, warnings.",
		Example: "  weft cni validate --strict /etc/cni/net.d/00-weft.conflist\n" +
			"  weft cni validate examples/multi-network/network.yaml",
		Args: oneFile,
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := ui.ReadConf(env, args[0])
			if err != nil {
				return err
			}
			confs, err := netconf.In(args[0], b)
			if err != nil {
				return err
			}
			var all []validation
			for _, c := range confs {
				v := validate(c, filepath.SplitList(binDirs))
				v.OK = v.Report.OK(strict)
				all = append(all, v)
			}
			return printValidations(env.Stdout, all, strict, output)
		},
	}
	binDirs = cmp.Or(env.Getenv("CNI_PATH"), "/opt/cni/bin:/usr/lib/cni")
	cmd.Flags().StringVar(&binDirs, "cni-bin-dir", binDirs,
		"`DIR` of other vendors' plugins; several, separated by :")
	cmd.Flags().BoolVar(&strict, "strict", false, "count warnings as errors")
	output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
	return cmd
}

// sharedTypes returns the IPAM types that allocate from the cluster's pools, which need the agent.
func sharedTypes() []string {
	var out []string
	for _, shared := range blocks.Readers(os.ReadFile) {
		out = append(out, shared.Type())
	}
	return out
}

func oneFile(_ *cobra.Command, args []string) error {
	const hint = "for example `weft cni validate /etc/cni/net.d/00-weft.conflist`, or - for standard input"
	switch {
	case len(args) == 0:
		return ui.Misusef(hint, "argument FILE is missing")
	case len(args) > 1:
		return ui.Misusef(hint, "unexpected argument %q", args[1])
	}
	return nil
}

// printValidations prints the reports and returns an error if one has errors. As JSON, one report is an object and
// several are a list.
func printValidations(w io.Writer, all []validation, strict bool, output *printer.Format) error {
	switch {
	case !output.Document():
		for _, e := range all {
			e.print(w)
		}
	case len(all) == 1:
		if err := output.Print(w, all[0]); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	default:
		if err := output.Print(w, all); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	var bad []error
	for _, e := range all {
		switch {
		case e.OK:
		case strict && len(e.Errors) == 0:
			bad = append(bad, fmt.Errorf("configuration %s: %d warnings (--strict)", e.File, len(e.Warnings)))
		default:
			bad = append(bad, fmt.Errorf("configuration %s: %d errors, %d warnings", e.File, len(e.Errors), len(e.Warnings)))
		}
	}
	return errors.Join(bad...)
}

func (e validation) print(w io.Writer) {
	for _, p := range e.Errors {
		fmt.Fprintf(w, "%s: error: %s\n", e.File, p)
	}
	for _, warning := range e.Warnings {
		fmt.Fprintf(w, "%s: warning: %s\n", e.File, warning)
	}
	if len(e.Errors)+len(e.Warnings) == 0 {
		fmt.Fprintf(w, "%s: network %q, cniVersion %s, plugins %v: no errors, no warnings\n", e.File, e.Network,
			e.CNIVersion, e.Plugins)
	}
}
