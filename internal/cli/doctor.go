// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/doctor"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
)

// bundleLimit bounds the whole of a support bundle.
const bundleLimit = 2 * time.Minute

func newDoctorCmd(env Env) *cobra.Command {
	var file, socket, output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "What is wrong with this node's network, and the way out",
		Long: `Looks at this node: the agent, its attachments, the runtime's programs and configurations, the kernel, the
other nodes. It goes by what the running agent says of its own flags and configuration; without an agent by the
file. It changes nothing and needs no API server. It exits with 1 when something is bad: new pods cannot be served,
or pods have no network. Keys of -o json: findings [{check, level, says, hint}]; level is ok, warn, bad, or skip for
what was not looked at.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return ui.UsageError(fmt.Errorf("output %q is neither text nor json", output))
			}
			node, err := doctor.This(cmd.Context(), file, socket)
			if err != nil {
				return err
			}
			all := doctor.Examine(cmd.Context(), node)
			if err := printLooks(env.Stdout, all, output); err != nil {
				return err
			}
			if doctor.Worst(all) == doctor.Bad {
				return ui.Exit(1)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the agent's configuration `FILE` (default: "+doctor.UsualConfig+
		", where it is there)")
	cmd.Flags().StringVar(&socket, "socket", "", "where the agent answers (default: the configuration's)")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func printLooks(w io.Writer, all []doctor.Finding, output string) error {
	if output == "json" {
		b, err := json.Marshal(struct {
			Findings []doctor.Finding `json:"findings"`
		}{all})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", b)
		return err
	}
	for _, f := range all {
		if _, err := fmt.Fprintf(w, "%-4s  %-13s  %s\n", f.Level, f.Check, f.Says); err != nil {
			return err
		}
		if f.Hint != "" {
			if _, err := fmt.Fprintf(w, "      %-13s  hint: %s\n", "", f.Hint); err != nil {
				return err
			}
		}
	}
	return nil
}

func newBundleCmd(env Env) *cobra.Command {
	var file, output string
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Everything that helps to understand this node, in one file",
		Long: `Writes a gzipped tar: the configuration, the attachments, the state of the network in the kernel, and what weft doctor
says. Values of keys that speak of secrets are left out. Look at it before you give it away all the same.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, err := doctor.This(cmd.Context(), file, "")
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), bundleLimit)
			defer cancel()
			now := time.Now()
			if output == "-" {
				return doctor.Bundle(ctx, node, env.Version, now, env.Stdout)
			}
			if output == "" {
				output = "weft-" + now.UTC().Format("20060102-150405") + ".tar.gz"
			}
			f, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, fs.ErrExist) {
				return model.Faultf(model.CodeIO, "name another file with -o", "%s is there already", output)
			}
			if err != nil {
				return model.Faultf(model.CodeIO, "name a file with -o, or - for stdout", "bundle: %w", err)
			}
			if err := errors.Join(doctor.Bundle(ctx, node, env.Version, now, f), f.Close()); err != nil {
				return err
			}
			_, err = fmt.Fprintln(env.Stdout, output)
			return err
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "the agent's configuration `FILE` (default: "+doctor.UsualConfig+
		", where it is there)")
	cmd.Flags().StringVarP(&output, "output", "o", "", "the `FILE` to write, - for stdout (default: weft-TIME.tar.gz)")
	return cmd
}
