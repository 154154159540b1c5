// SPDX-License-Identifier: Apache-2.0

// Package objects opens the cluster's datastore for a command: a directory of manifests, an API server or etcd, from
// flags, an agent's configuration or the environment.
package objects

import (
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

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
	Config               string
	storeDir, kubeconfig string
}

// Flags adds the flags of the datastore, and -o.
func (f *Source) Flags(cmd *cobra.Command, output **printer.Format) {
	f.DatastoreFlags(cmd)
	*output = printer.Flag(cmd.Flags(), printer.Text, printer.JSON)
}

// DatastoreFlags adds the flags of the datastore.
func (f *Source) DatastoreFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.storeDir, "store-dir", "", "`DIR` of the cluster's manifests")
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "",
		"kubeconfig `FILE` (default: $KUBECONFIG; in a pod its service account; else ~/.kube/config)")
	cmd.Flags().StringVar(&f.Config, "config", "",
		"`FILE` of an agent's configuration: use its datastore (directory, API server or etcd)")
	cmd.MarkFlagsMutuallyExclusive("store-dir", "kubeconfig", "config")
}

// Open opens the datastore.
func (f *Source) Open() (store.Objects, error) {
	if f.Config != "" {
		return f.openConfigured()
	}
	if f.storeDir != "" {
		return openDir(f.storeDir)
	}
	if f.kubeconfig != "" {
		if _, err := os.Stat(f.kubeconfig); err != nil {
			return nil, ui.FileError("for example --kubeconfig /etc/kubernetes/admin.conf", "--kubeconfig", f.kubeconfig, err)
		}
	}
	objects, found, err := kube.Open(f.Env, f.kubeconfig)
	if !found {
		return nil, ui.UsageError(
			model.Errorf(model.CodeInvalidConf, "add --store-dir, --kubeconfig or --config, for example --store-dir /run/weft/lab/store",
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
