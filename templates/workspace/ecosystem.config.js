// pm2 start ecosystem.config.js      then: pm2 logs @NAME@, pm2 stop @NAME@
// pm2 save && pm2 startup            so that it starts with the machine; then run what it prints
module.exports = {
  apps: [
    {
      name: "@NAME@",
      script: "@QUASAR@",
      interpreter: "none",
      args: ["run", "-C", "@WORKSPACE@"],
      cwd: "/", // pm2 would not try again where the workspace is missing; the miner does
      // These belong in .env: pm2 saves its environment where everyone may read it.
      filter_env: ["WALLET_PASSWORD", "BT_PW_", "GITHUB_TOKEN", "QUASAR_PASSPHRASE"],
      // Nothing is final but a stop: a ban passes, a disk is mounted late, a hotkey is registered at last.
      restart_delay: 300000,
      // A stop is for the miner itself, not for a command of --notify that still runs.
      treekill: false,
      kill_timeout: 15000,
    },
  ],
};
