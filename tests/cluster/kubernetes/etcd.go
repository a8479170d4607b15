package main

import (
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

// How long etcd may take to be ready.
const patience = 30 * time.Second

// An etcd of one member for tests: nothing in it has to survive the machine.
func etcd() *cobra.Command {
	var dir, client, peer string
	command := &cobra.Command{
		Use:   "etcd",
		Short: "The store of the API server",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			config := embed.NewConfig()
			config.Dir = dir
			config.LogLevel = "error"
			config.UnsafeNoFsync = true
			// What is written is in the log at once; that it is in the database ten times a second helps nobody here.
			config.BackendBatchInterval = time.Second
			config.MaxTxnOps = 1024
			// There is nobody whose silence it would have to notice.
			config.TickMs = 300
			config.ElectionMs = 1500
			for _, urls := range []struct {
				address           string
				listen, advertise *[]url.URL
			}{
				{client, &config.ListenClientUrls, &config.AdvertiseClientUrls},
				{peer, &config.ListenPeerUrls, &config.AdvertisePeerUrls},
			} {
				parsed, err := url.Parse("http://" + urls.address)
				if err != nil {
					return err
				}
				*urls.listen, *urls.advertise = []url.URL{*parsed}, []url.URL{*parsed}
			}
			config.InitialCluster = config.InitialClusterFromName(config.Name)
			server, err := embed.StartEtcd(config)
			if err != nil {
				return err
			}
			defer server.Close()
			select {
			case <-server.Server.ReadyNotify():
			case <-time.After(patience):
				return fmt.Errorf("etcd was not ready after %s", patience)
			}
			return <-server.Err()
		},
	}
	command.Flags().StringVar(&dir, "data-dir", "", "where the data is kept")
	command.Flags().StringVar(&client, "listen-client", "127.0.0.1:2379", "where the API server reaches it")
	command.Flags().StringVar(&peer, "listen-peer", "127.0.0.1:2380", "where other members would")
	return command
}
