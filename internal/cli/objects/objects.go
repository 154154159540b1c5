// SPDX-License-Identifier: Apache-2.0

// Package objects opens the cluster's datastore for a command: a directory of manifests, an API server or etcd, from
// flags, an agent's configuration or the environment.
package objects

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/complete"
	"github.com/weft-net/weft/internal/cli/kube"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/cluster/store/etcd"
	"github.com/weft-net/weft/internal/model"
)

// Source is the cluster's datastore, as flags name it.
type Source struct {
	Env ui.Env
	// Config is the path of an agent's configuration; empty without the flag.
	Config                             string
	storeDir, dir, kubeconfig, context string
}

// Flags adds the flags of the datastore, and -o.
func (f *Source) Flags(cmd *cobra.Command, output **printer.Format) {
	f.DatastoreFlags(cmd)
	f.LabFlag(cmd)
	*output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
}

// DatastoreFlags adds the flags of the datastore, without that of a lab.
func (f *Source) DatastoreFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.storeDir, "store-dir", "", "`DIR` of the cluster's manifests")
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "",
		"kubeconfig `FILE` (default: $KUBECONFIG; in a pod its service account; else ~/.kube/config)")
	cmd.Flags().StringVar(&f.context, "context", "",
		"`CONTEXT` of the kubeconfig (default: $WEFT_CONTEXT; else its current one)")
	complete.Flag(cmd, "context", func(context.Context) ([]string, error) { return kube.Contexts(f.Env, f.kubeconfig) })
	cmd.Flags().StringVar(&f.Config, "config", "",
		"`FILE` of an agent's configuration: use its datastore (directory, API server or etcd)")
	for _, server := range []string{"kubeconfig", "context"} {
		cmd.MarkFlagsMutuallyExclusive("store-dir", "config", server)
	}
}

// LabFlag adds the flag of a lab, after DatastoreFlags. weft ipam import has a --dir with another meaning.
func (f *Source) LabFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dir, "dir", "", "`DIR` of a lab: use its manifests (default: $WEFT_LAB)")
	for _, other := range []string{"store-dir", "config", "kubeconfig", "context"} {
		cmd.MarkFlagsMutuallyExclusive("dir", other)
	}
}

// named returns the directory of a lab and the context of a kubeconfig: those of flags, and if no flag names a datastore,
// those of the environment.
func (f *Source) named() (lab, context string) {
	if f.dir != "" || f.kubeconfig != "" || f.context != "" {
		return f.dir, f.context
	}
	return f.Env.Variable(ui.LabVariable, ""), f.Env.Variable(ui.ContextVariable, "")
}

// Open opens the datastore: the one that a flag names, else an environment variable, else that of the kubeconfig.
func (f *Source) Open() (store.Objects, error) {
	if f.Config != "" {
		return f.openConfigured()
	}
	if f.storeDir != "" {
		return openDir(f.storeDir)
	}
	lab, context := f.named()
	if lab != "" {
		return openLab(lab)
	}
	if f.kubeconfig != "" {
		if _, err := os.Stat(f.kubeconfig); err != nil {
			return nil, ui.FileError("for example --kubeconfig /etc/kubernetes/admin.conf", "--kubeconfig", f.kubeconfig, err)
		}
	}
	objects, found, err := kube.Open(f.Env, f.kubeconfig, context)
	if !found {
		return nil, ui.UsageError(
			model.Errorf(model.CodeInvalidConf, "add --store-dir, --dir, --kubeconfig or --config, for example --store-dir /run/weft/lab/store",
				"no datastore is named"),
		)
	}
	return objects, err
}

// openConfigured opens the datastore of an agent's configuration.
func (f *Source) openConfigured() (store.Objects, error) {
	c, err := config.Load(f.Config)
	switch {
	case err != nil:
		return nil, err
	case c.StoreDir != "":
		return openDir(c.StoreDir)
	case len(c.Etcd.Endpoints) > 0:
		return f.openEtcd(c.Etcd)
	case c.Kubernetes.InCluster || c.Kubernetes.Kubeconfig != "":
		return kube.OpenConfigured(f.Env, c.Kubernetes)
	}
	return nil, model.Errorf(model.CodeInvalidConf, "set storeDir, kubernetes or etcd.endpoints in that file",
		"%s: the agent has no datastore", f.Config)
}

// openLab opens the manifests of a lab.
func openLab(path string) (store.Objects, error) {
	manifests := filepath.Join(path, "store")
	if _, err := os.Stat(manifests); err != nil {
		return nil, ui.FileError("choose the directory of a lab, `weft lab list` lists them", "lab", manifests, err)
	}
	return openDir(manifests)
}

func openDir(path string) (store.Objects, error) {
	s, err := dir.Open(path)
	if err != nil {
		return nil, err
	}
	return s.Objects(), nil
}

// openEtcd connects to etcd; the connection ends with the program.
func (f *Source) openEtcd(e config.Etcd) (store.Objects, error) {
	s, err := etcd.OpenObjects(etcd.Config{
		Access: etcd.Access{
			Endpoints: e.Endpoints, Prefix: e.Prefix, CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile,
			Username: e.Username, Password: e.Password,
		},
		Log: slog.New(slog.NewTextHandler(f.Env.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), Now: time.Now,
		After: time.After,
	})
	if err != nil {
		return nil, err
	}
	return s.Objects(), nil
}
